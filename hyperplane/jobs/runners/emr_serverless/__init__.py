"""Runner for EMR Serverless."""
