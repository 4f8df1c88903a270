"""What runs inside a training process: model, input, step, checkpoint, export."""
