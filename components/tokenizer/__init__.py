"""The tokenizer: learned by a Beam analyzer inside TFX's Transform, applied in its graph.

`learning` turns text into word counts and word counts into a SentencePiece model; `preprocessing` is
the preprocessing_fn that Transform calls. What a token id means is said once, in
`trainer_module.tokenization`.
"""
