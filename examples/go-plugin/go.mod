module example.com/rack-plugin

go 1.26.0

// A plugin of your own names a released version instead.
replace github.com/nvidia/nvsentinel/janitor/protos => ../../janitor/protos

require (
	github.com/nvidia/nvsentinel/janitor/protos v0.0.0
	google.golang.org/grpc v1.85.0
)

require (
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
