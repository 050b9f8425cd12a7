"""Matrix products: few rows stream the weights, many rows go through tiles of the tensor cores."""
