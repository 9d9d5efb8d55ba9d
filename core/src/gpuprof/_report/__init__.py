"""What people read: the trees, the receipt, and tables of ranges."""
