"""Errors of requests to Amazon Web Services; importing them does not need boto3."""

from __future__ import annotations

from hyperplane.core.errors.platforms import PlatformError

#: Name of the platform in errors.
PLATFORM = "aws"
#: Error codes of credentials that are missing, wrong or expired.
_CREDENTIAL_CODES = {
    "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidClientTokenId",
    "InvalidToken", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException",
}  # fmt: skip
#: Error codes of requests that a service refuses because there are too many.
_THROTTLING_CODES = {
    "RequestLimitExceeded", "ResourceNumberLimitExceededException", "SlowDown",
    "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequestsException",
}  # fmt: skip
#: Error codes of Glue after which a run may exist: the first is its answer to a second start while
#: the first run is active, and the status of both is 400.
_UNCONFIRMED_CODES = {"ConcurrentRunsExceededException", "OperationTimeoutException"}
_TOO_MANY = 429
#: Error code of S3 for an upload that was too slow; its status is 400.
_TIMEOUT_CODE = "RequestTimeout"
#: Error codes of requests that need more permissions.
DENIED_CODES = {"403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}


class AwsError(PlatformError):
    """A request to Amazon Web Services failed; base of the errors below."""

    def __init__(self, message: str) -> None:
        super().__init__(PLATFORM, message)


class AwsConnectionError(AwsError):
    """A service did not answer; it is unknown whether it carried out the request."""


class AwsCredentialsError(AwsError):
    """There are no credentials, or they are wrong or expired."""


class AwsRequestError(AwsError):
    """A service answered with an error.

    Attributes
    ----------
    code : str
        Error code, such as ``"AccessDenied"``.
    status : int
        HTTP status of the answer; 0 for a request that was not sent.
    """

    def __init__(self, message: str, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.code, self.status = code, status


def is_retryable(error: AwsError) -> bool:
    """Return whether the same request may succeed later."""
    if isinstance(error, AwsRequestError):
        too_many = error.status == _TOO_MANY or error.code in _THROTTLING_CODES
        return too_many or error.code == _TIMEOUT_CODE or is_unconfirmed(error)
    return isinstance(error, AwsConnectionError)


def is_invalid(error: AwsError) -> bool:
    """Return whether the service refuses the request itself, not for a permission or its load.

    Examples
    --------
    >>> is_invalid(AwsRequestError("no such job", "ClientException", 404))
    True
    >>> is_invalid(AwsRequestError("not authorized", "AccessDeniedException", 403))
    False
    """
    return (
        isinstance(error, AwsRequestError)
        and error.code not in DENIED_CODES
        and not is_retryable(error)
    )


def is_unconfirmed(error: AwsError) -> bool:
    """Return whether the service may have carried out the request in spite of the error.

    Examples
    --------
    >>> is_unconfirmed(AwsConnectionError("no answer"))
    True
    >>> is_unconfirmed(AwsRequestError("too many requests", status=429))
    False
    """
    if isinstance(error, AwsRequestError):
        if error.code in _UNCONFIRMED_CODES:
            return True
        return error.status >= 500 and error.code not in _THROTTLING_CODES
    return isinstance(error, AwsConnectionError)


def translate_error(error: Exception, action: str) -> AwsError:
    """Return the error of boto3 as one of this package.

    Parameters
    ----------
    error : Exception
        An error of botocore.
    action : str
        Name of the request, such as ``"batch submit_job"``.
    """
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    if isinstance(error, exceptions.ClientError):
        details = error.response.get("Error", {})
        code, message = str(details.get("Code", "")), str(details.get("Message", "")).strip()
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _CREDENTIAL_CODES:
            return AwsCredentialsError(_describe_credentials(action, f"{code}: {message}"))
        return AwsRequestError(
            f"Amazon answered {status} {code} ({action}): {message}", code, status
        )
    if isinstance(error, exceptions.ParamValidationError):
        return AwsRequestError(f"boto3 refuses the request ({action}): {error}", "Invalid")
    # The answer to a request that may have been carried out cannot be read.
    connection = (exceptions.HTTPClientError, exceptions.ConnectionError, ResponseParserError)
    if isinstance(error, connection):
        return AwsConnectionError(f"Amazon does not answer ({action}): {error}")
    # All others concern profiles, regions, logins and instance roles.
    return AwsCredentialsError(_describe_credentials(action, str(error)))


def _describe_credentials(action: str, reason: str) -> str:
    advice = "Log in again, such as with 'aws sso login', or set AWS_PROFILE or AWS_ACCESS_KEY_ID"
    return f"the credentials for Amazon cannot be used ({action}): {reason}. {advice}"
