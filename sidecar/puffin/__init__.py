"""The Puffin container: reader and streaming writer."""
