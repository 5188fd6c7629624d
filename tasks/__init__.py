"""What is done: claim, look, mark, call, settle; sweep; escalate."""
