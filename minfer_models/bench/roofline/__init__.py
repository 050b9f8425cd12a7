"""`minfer-bench roofline`: where the time goes, against what the machine can do."""
