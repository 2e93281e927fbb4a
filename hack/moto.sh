#!/usr/bin/env bash
# Installs moto, whose server of EC2's API the tests of csp-plugins/aws run, and
# prints the folder of its programs; see python-env.sh.
exec "$(dirname "$0")/python-env.sh" moto 'moto[ec2,server]==5.2.5'
