package main

// help is the whole manual.
const help = `local-cluster runs a local Kubernetes with simulated GPU nodes.

Usage:
  local-cluster up [--nodes N] [--prefix NAME] [--state DIR] [--detach]
  local-cluster down [--state DIR]
  local-cluster status [--state DIR]
  local-cluster kubeconfig [--state DIR]
  local-cluster build [--kubectl]

Commands:
  up          start a cluster and keep it until Ctrl-C; with --detach leave it running
  down        stop it; nothing is left behind. Fine when none runs
  status      say whether one runs, where, and with which nodes
  kubeconfig  print the path of the administrator's kubeconfig
  build       build the control plane into the user's cache; --kubectl builds kubectl
              as well and prints its path

Flags:
  --nodes N      simulated nodes with 8 GPUs each (default 3)
  --prefix NAME  nodes are called NAME-0, NAME-1, ... (default gpu)
  --state DIR    folder of this cluster (default nvsentinel/local-cluster in the user's
                 cache folder); another folder is another cluster
  --detach       return when the cluster is up

Without a built control plane the first start takes minutes.

Exit codes:
  0  done; also a cluster in the foreground that was up and asked to stop
  1  failed; the reason is on standard error
  2  wrong usage
  3  no cluster runs (status, kubeconfig)
`
