module github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor

go 1.26.7

require github.com/nvidia/nvsentinel/data-models v0.0.0

replace github.com/nvidia/nvsentinel/data-models => ../../data-models
