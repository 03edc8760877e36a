"""The compiled kernel that bounds one box of a small ReLU network at a time."""
