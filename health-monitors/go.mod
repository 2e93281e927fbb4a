module github.com/nvidia/nvsentinel/health-monitors

go 1.26.0

replace (
	github.com/nvidia/nvsentinel/data-models => ../data-models
	github.com/nvidia/nvsentinel/internal => ../internal
	github.com/nvidia/nvsentinel/store-client => ../store-client
)
