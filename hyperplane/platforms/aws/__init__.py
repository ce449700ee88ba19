"""Amazon Web Services: Batch jobs, their logs in CloudWatch, and files in S3, through boto3."""
