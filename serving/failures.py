"""What a request can be refused for, with the codes of both protocols."""

import grpc

from foundation.errors import TokenmillError


class RequestError(TokenmillError):
    """A request that cannot be answered; the message goes to the client."""

    code = grpc.StatusCode.INTERNAL
    http_status = 500


class InvalidRequest(RequestError):
    """The client must change the request."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    http_status = 400


class TooLarge(InvalidRequest):
    """Above a limit on size."""

    http_status = 413


class NotFound(RequestError):
    """No such model, version or signature."""

    code = grpc.StatusCode.NOT_FOUND
    http_status = 404


class Overloaded(RequestError):
    """The queue is full; the client comes again later."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    http_status = 429


class TimedOut(RequestError):
    """No answer within the request's time."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    http_status = 504


class Draining(RequestError):
    """The server is going down, or has no model yet."""

    code = grpc.StatusCode.UNAVAILABLE
    http_status = 503
