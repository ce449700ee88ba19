"""The engine ``spark:kubernetes``: a script that submits a program of Spark to Kubernetes."""
