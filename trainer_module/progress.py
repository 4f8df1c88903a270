"""How far a training is, and whether it should end: budgets, the best validation, early stop."""

import dataclasses
import math

from trainer_module.config import TrainConfig
from trainer_module.consumption import Said, chained


@dataclasses.dataclass(frozen=True)
class Progress:
    """Travels with each checkpoint, so that a budget spans restarts."""

    tokens: int = 0
    """Predicted so far."""

    seconds: float = 0.0
    """Wall time of training so far, by the chief's clock, without the newest step."""

    best_loss: float | None = None
    """Lowest validation loss so far, nats per predicted token."""

    best_step: int | None = None
    """Step of that validation."""

    validations_since_best: int = 0

    rows_digest: str = "0" * 16
    """Of all rows so far, and their order (`trainer_module.consumption`): 16 hex digits."""

    def after_step(self, said: Said) -> "Progress":
        """One step further, of which all processes together said this."""
        digest = chained(int(self.rows_digest, 16), said.rows_digest)
        return dataclasses.replace(
            self, tokens=self.tokens + said.num_tokens, seconds=said.seconds, rows_digest=f"{digest:016x}"
        )

    def after_validation(self, step: int, loss: float) -> "Progress":
        """With the loss of a validation taken into account; one that is not a number is no better than any."""
        if math.isfinite(loss) and (self.best_loss is None or loss < self.best_loss):
            return dataclasses.replace(self, best_loss=loss, best_step=step, validations_since_best=0)
        return dataclasses.replace(self, validations_since_best=self.validations_since_best + 1)

    def reason_to_end(self, config: TrainConfig, step: int) -> str | None:
        """Why training ends after this step, in words; None: it goes on."""
        if step >= config.steps:
            return f"all {config.steps} steps are done"
        if config.max_tokens is not None and self.tokens >= config.max_tokens:
            return f"train.max_tokens {config.max_tokens} is reached ({self.tokens} tokens)"
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"train.max_minutes {config.max_minutes} is reached"
        patience = config.early_stop_validations
        if patience is not None and self.validations_since_best >= patience:
            return f"{patience} validations in a row were no better than that of step {self.best_step}"
        return None
