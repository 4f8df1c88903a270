"""One page for each evaluation: the verdict, the loss curve, metrics by slice beside the baseline's, samples."""
