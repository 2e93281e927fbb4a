package main

// help is the whole manual.
const help = `local-cluster runs a local Kubernetes cluster with simulated GPU nodes.

Usage:
  local-cluster up [--nodes N] [--prefix NAME] [--state DIR] [--detach]
  local-cluster down [--state DIR]
  local-cluster status [--state DIR]
  local-cluster kubeconfig [--state DIR]
  local-cluster build [--kubectl]

Commands:
  up          start a cluster and run it until Ctrl-C, or in the background with --detach
  down        stop the cluster and remove it. Succeeds if none runs
  status      show whether a cluster runs, its address and its nodes
  kubeconfig  print the path of the administrator's kubeconfig
  build       build the control plane into the user cache. --kubectl also builds kubectl
              and prints its path

Flags:
  --nodes N      number of simulated nodes with 8 GPUs each (default 3)
  --prefix NAME  prefix of the node names NAME-0, NAME-1, ... (default gpu)
  --state DIR    directory of this cluster (default nvsentinel/local-cluster in the user
                 cache directory). Each directory is a separate cluster
  --detach       return when the cluster is ready

The first start builds the control plane and takes minutes.

Exit codes:
  0  success, also after a foreground cluster was stopped by a signal
  1  failure, with the reason on standard error
  2  invalid usage
  3  no cluster is running (status, kubeconfig)
`
