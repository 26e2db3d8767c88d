"""A worker: loads the libraries, closes its sandbox, decodes what the service hands it.

The only package that imports h5py, numcodecs and the readers of pyarrow. It imports nothing of
the service but the messages, so that it starts fast and holds no secrets.
"""
