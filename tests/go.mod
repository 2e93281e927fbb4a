module github.com/nvidia/nvsentinel/tests

go 1.26.0

replace (
	github.com/nvidia/nvsentinel/data-models => ../data-models
	github.com/nvidia/nvsentinel/internal => ../internal
	github.com/nvidia/nvsentinel/store-client => ../store-client
	github.com/nvidia/nvsentinel/platform-connectors => ../platform-connectors
	github.com/nvidia/nvsentinel/health-monitors => ../health-monitors
	github.com/nvidia/nvsentinel/fault-quarantine => ../fault-quarantine
	github.com/nvidia/nvsentinel/node-drainer => ../node-drainer
	github.com/nvidia/nvsentinel/fault-remediation => ../fault-remediation
	github.com/nvidia/nvsentinel/janitor => ../janitor
	github.com/nvidia/nvsentinel/janitor/protos => ../janitor/protos
	github.com/nvidia/nvsentinel/csp-plugins => ../csp-plugins
)
