"""Train models on features, and feature networks on videos: `train` and `finetune`."""
