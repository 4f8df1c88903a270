"""What a failure is, in one line, for the person who has to mend it."""

from foundation.errors import PipelineError, TokenmillError


def explain(error: BaseException) -> tuple[str, int]:
    """The cause of a failure in one line, and the exit code.

    Beam wraps what a worker raised into a RuntimeError whose text holds the original's; our own errors are
    looked for in the chain and in that text.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, TokenmillError):
            return str(link), link.exit_code
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    text = str(error).strip()
    for kind in TokenmillError.__subclasses__():
        marker = f"foundation.errors.{kind.__name__}: "
        if marker in text:
            message = text.split(marker)[1].split(" [while running ")[0]
            return message.strip(), kind.exit_code
    lines = text.splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1][:500]}", PipelineError.exit_code
