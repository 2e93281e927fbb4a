module github.com/nvidia/nvsentinel/platform-connectors

go 1.26.0

replace (
	github.com/nvidia/nvsentinel/data-models => ../data-models
	github.com/nvidia/nvsentinel/internal => ../internal
	github.com/nvidia/nvsentinel/store-client => ../store-client
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
)
