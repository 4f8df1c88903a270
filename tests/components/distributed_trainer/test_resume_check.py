"""The proof that a killed training is the undisturbed one: given where it is, and refused where it is not."""

import io

import pytest

from components.distributed_trainer.resume_check import check_resume
from foundation.errors import TrainingError
from tests.components.distributed_trainer.clusters import TRAIN, WORKER, job_of, left_behind, write_splits
from trainer_module.config import DistributionConfig

pytestmark = pytest.mark.slow


def check(folder, num_workers=2, kill_at=5, last_step=14, **settings):
    write_splits(folder)
    distribution = DistributionConfig(strategy="multi_worker", num_workers=num_workers)
    train = TRAIN.model_copy(update={"async_checkpoints": False})  # that of step 4 is there when step 5 is
    job = job_of(folder, folder, train, distribution, pause_s=0.1, **settings)
    notes = []
    result = check_resume(job, distribution, kill_at, last_step, folder / "check", notes.append, io.StringIO(), WORKER)
    assert left_behind() == []
    return result, notes


def test_a_training_that_resumes_exactly_passes(tmp_path):
    result, notes = check(tmp_path)
    assert result.same
    assert {part.name for part in result.parts} >= {"params", "first moments", "second moments", "losses", "step"}
    assert all(part.number > 0 for part in result.parts)
    assert 5 <= result.killed_at < 14
    assert result.resumed_from in (4, 8, 12)  # checkpoints come every 4 steps
    assert result.resumed_from <= result.killed_at
    assert result.seconds_to_first_step > 1  # processes that import TensorFlow
    assert f"kills worker {result.killed_rank} of 2" in notes[1]


def test_a_training_that_loses_its_moments_is_found_out(tmp_path):
    result, _ = check(tmp_path, num_workers=1, forgets=True)
    assert not result.same
    different = {part.name for part in result.parts if part.difference}
    assert different >= {"params", "first moments", "losses"}
    assert "rows consumed" not in different


def test_a_kill_after_the_end_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="choose an earlier step"):
        check(tmp_path, num_workers=1, kill_at=30, last_step=8)
