"""Documented module of text helpers that this package does not provide."""

from hyperplane.core.errors import UnsupportedModule

raise UnsupportedModule(
    "hyperplane.hyper_nlp",
    "instead of save_model and load_model use hyperplane.save and hyperplane.load; to run your "
    "function on many texts use hyperplane.bag or hyperplane.dataframe; for get_topics use "
    "scikit-learn (TfidfVectorizer, LatentDirichletAllocation), for extract_qa transformers "
    "(pipeline('question-answering')), for extract_digital_pdf pypdf",
)
