"""The documented module of text helpers, which this package does not provide."""

from hyperplane.errors import UnsupportedModule

raise UnsupportedModule(
    "hyperplane.hyper_nlp",
    "provided are hyperplane.save and hyperplane.load for its save_model and load_model, and "
    "hyperplane.bag and hyperplane.dataframe to run a function of your own on many texts. For "
    "get_topics use scikit-learn (TfidfVectorizer, LatentDirichletAllocation), for extract_qa "
    "transformers (pipeline('question-answering')), for extract_digital_pdf pypdf",
)
