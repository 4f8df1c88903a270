"""Where a component's property comes from: the setting's name in the configuration, for whoever has to change it."""

_WHOLE_SECTIONS = {"train_config": "train", "model_config": "model"}
"""Properties that hold a section of the configuration as JSON."""

_SETTINGS = {
    "seq_len": "model.seq_len",
    "vocab_size": "model.vocab_size",
    "custom_config.vocab_size": "model.vocab_size",
    "policy": "packing.policy",
    "tokens_per_shard": "packing.tokens_per_shard",
    "eval_config.upper_bound": "evaluation.max_bits_per_byte",
    "eval_config.slicing_specs": "evaluation.slice_by_source",
    "registry_dir": "registry.folder",
    "baseline": "the served model",
    "recipe": "what decides the model",
    "keep_versions": "registry.keep_versions",
    "mirror": "registry.mirror",
    "checkpoint_root": "run_root",
    "input_base": "corpus.documents",
    "schema_sha256": "schema/corpus.pbtxt",
    "output_config.hash_buckets": "corpus.eval_buckets",
}


def setting_of(prop: str) -> str:
    """The setting behind a property: `name`, or with keys inside a JSON value `name.key.key`.

    The property itself, with the innermost key, where no setting is known.
    """
    name, *_, field = prop.split(".") if "." in prop else (prop, "")
    if name == "rules":
        return "gate" + prop.removeprefix("rules")
    prop = f"{name}.{field}" if field else name
    if prop in _SETTINGS:
        return _SETTINGS[prop]
    if field and name in _WHOLE_SECTIONS:
        return f"{_WHOLE_SECTIONS[name]}.{field}"
    if field and name == "custom_config":
        return f"tokenizer.{field}"
    return prop
