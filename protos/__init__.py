"""Wire formats: .proto files and the code generated from them."""
