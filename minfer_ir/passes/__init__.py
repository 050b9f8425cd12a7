"""Named passes, and the pipeline that lists them."""
