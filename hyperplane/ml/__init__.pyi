from .cluster_context import parallel as parallel
from .estimators.estimator import Estimator as Estimator
from .gpu_estimators import gpu_equivalent as gpu_equivalent
from .prediction.batch import PredictionResult as PredictionResult
from .prediction.batch import predict_files as predict_files
from .prediction.lazy import predict as predict
from .prediction.registry import ModelRegistry as ModelRegistry
from .prediction.registry import ModelVersion as ModelVersion
from .process_gang import gang as gang
from .search.program_tuning import tune_program as tune_program
from .search.search_result import SearchResult as SearchResult
from .search.space import Range as Range
from .search.trial import Trial as Trial
from .search.tuning import read_search as read_search
from .search.tuning import tune as tune
from .serving.serve import ModelServer as ModelServer
from .serving.serve import serve as serve
from .shards.readers import read_csv as read_csv
from .shards.readers import read_json as read_json
from .shards.readers import read_parquet as read_parquet
from .shards.shared_value import SharedValue as SharedValue
from .shards.xshards import XShards as XShards
from .training.train_column_parts import train_column_parts as train_column_parts
from .training.train_pipeline import train_pipeline as train_pipeline
from .training.train_program import train_program as train_program
from .training.train_with_averaged_weights import (
    train_with_averaged_weights as train_with_averaged_weights,
)
from .training.train_with_parameter_server import (
    train_with_parameter_server as train_with_parameter_server,
)
from .training.training_result import AsynchronousTrainingResult as AsynchronousTrainingResult
from .training.training_result import TrainingResult as TrainingResult
