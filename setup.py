"""The packages of the distribution; everything else is in setup.cfg, which could list them, but not find them: the
configuration, ``conf/``, is installed as ``fullgnn.conf`` and lies beside the folder of the code."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["fullgnn", "fullgnn.*"]), "fullgnn.conf"], package_dir={"fullgnn.conf": "conf"})
