#!/usr/bin/env bash
# Installs the packages of examples/python-plugin and prints the folder of their
# interpreter; see python-env.sh.
cd "$(dirname "$0")/../examples/python-plugin" && exec ../../hack/python-env.sh python-plugin -r requirements.txt
