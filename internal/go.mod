module github.com/nvidia/nvsentinel/internal

go 1.26.0

replace (
	github.com/nvidia/nvsentinel/data-models => ../data-models
)
