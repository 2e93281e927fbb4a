module github.com/nvidia/nvsentinel/fault-quarantine

go 1.26.0

replace (
	github.com/nvidia/nvsentinel/data-models => ../data-models
	github.com/nvidia/nvsentinel/internal => ../internal
	github.com/nvidia/nvsentinel/store-client => ../store-client
)

require (
	cel.dev/cel-go v0.33.2 // indirect
	github.com/chzyer/readline v1.5.1 // indirect
	github.com/cockroachdb/datadriven v1.0.3 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/pprof v0.0.0-20260802141513-ef3492d7dac3 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20250417193237-f615e6bd150b // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	golang.org/x/sys v0.32.0 // indirect
	k8s.io/api v0.37.2 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
)
