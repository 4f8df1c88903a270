"""The verdict: metrics, thresholds and results of the standard TFX Evaluator.

TFMA feeds the raw evaluation documents to the exported model's `score` signature and sums what comes
back; `metrics` divides the sums, `eval_config` sets the thresholds that decide the blessing, and
`results` reads all of it back in plain words.
"""
