"""A checkpoint is whole or ignored, and belongs to one run."""

import pytest
import tensorflow as tf

from foundation import atomic
from foundation.errors import TrainingError
from trainer_module import checkpoint


def variables(value):
    return {"step": tf.Variable(int(value), dtype=tf.int64), "params/w": tf.Variable([value, value + 0.5])}


def save(folder, step, keep=5):
    return checkpoint.save(folder, step, variables(step), "print", keep)


def test_the_newest_is_restored(tmp_path):
    for step in (10, 20, 9):
        save(tmp_path, step)
    target = variables(0)
    assert checkpoint.restore_newest(tmp_path, target, "print").step == 20
    assert target["params/w"].numpy().tolist() == [20.0, 20.5]
    assert int(target["step"]) == 20


def test_nothing_to_restore_is_none(tmp_path):
    assert checkpoint.restore_newest(tmp_path / "nowhere", variables(0), "print") is None


def test_only_the_newest_are_kept(tmp_path):
    for step in (10, 20, 30):
        save(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000020", "step-00000030"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "manifest", "manifest_gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, damage, caplog):
    save(tmp_path, 10)
    newest = save(tmp_path, 20)
    data = newest / "variables.data-00000-of-00001"
    if damage == "flip":
        content = bytearray(data.read_bytes())
        content[3] ^= 1
        data.write_bytes(content)
    elif damage == "truncate":
        data.write_bytes(data.read_bytes()[:-1])
    elif damage == "delete":
        data.unlink()
    elif damage == "manifest":
        (newest / "checkpoint.json").write_text("{")
    else:
        (newest / "checkpoint.json").unlink()
    target = variables(0)
    assert checkpoint.restore_newest(tmp_path, target, "print").step == 10
    assert int(target["step"]) == 10
    assert "step-00000020 is damaged" in caplog.text


def test_a_save_that_fails_leaves_the_earlier_ones(tmp_path, monkeypatch):
    save(tmp_path, 10)

    def full_disk(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "sync_tree", full_disk)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010"]


def test_unfinished_folders_are_not_read(tmp_path):
    save(tmp_path, 10)
    save(tmp_path, 20).rename(tmp_path / f"{atomic.STAGING_PREFIX}step-00000020-abc")
    assert checkpoint.restore_newest(tmp_path, variables(0), "print").step == 10


def test_a_checkpoint_of_another_run_is_refused_with_both_fingerprints(tmp_path):
    save(tmp_path, 10)
    with pytest.raises(TrainingError, match=r"fingerprint print, this run has other"):
        checkpoint.restore_newest(tmp_path, variables(0), "other")


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 10)
    checkpoint.save(tmp_path, 10, variables(11), "print", 5)
    target = variables(0)
    assert checkpoint.restore_newest(tmp_path, target, "print").step == 10
    assert target["params/w"].numpy().tolist() == [11.0, 11.5]
