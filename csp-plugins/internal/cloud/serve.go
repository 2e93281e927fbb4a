package cloud

import (
	"context"

	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/csp-plugins/internal/callers"
	"github.com/nvidia/nvsentinel/internal/daemon"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// Serve makes the service of a plugin: what a main has left to do is to make the
// provider. name is the plugin's, under which it is known to the API server.
func Serve(d *daemon.Daemon, name string, c Config, proof Proof, provider Provider) error {
	return ServeAsync(d, name, c, proof, direct{provider})
}

// ServeHardware is Serve for Hardware, which verifies its machines itself.
func ServeHardware(d *daemon.Daemon, name string, c Config, provider Hardware) error {
	return Serve(d, name, c, Proof{}, provider)
}

// ServeAsync is Serve for a cloud that makes an operation of each signal.
func ServeAsync(d *daemon.Daemon, name string, c Config, proof Proof, provider AsyncProvider) error {
	cluster, err := kube.Connect(c.Kube, name+"/"+d.Version)
	if err != nil {
		return err
	}
	impl := &Plugin{
		Provider: provider, Client: cluster.Clientset, Proof: proof, Log: d.Log, Metrics: NewMetrics(d.Registry),
		Memory: Memory{Client: cluster.Clientset, Namespace: c.Namespace, Prefix: name},
	}
	options := plugin.Options{
		Panicked: func(method string, value any) { d.Log.Error("call panicked", "method", method, "panic", value) },
	}
	if !c.Plaintext {
		options.TLS = &plugin.TLS{CertFile: c.CertFile, KeyFile: c.KeyFile, ClientCAFile: c.ClientCAFile}
	}
	if !c.Anyone {
		if err := callers.Admit(&options, callers.Reviews{Client: cluster.Clientset}, c.Audience, c.Callers); err != nil {
			return err
		}
	}
	if _, ok := impl.hardware(); !ok {
		impl.watch(d) // hardware is watched machine by machine
	}
	d.Go("server", func(ctx context.Context) error { return plugin.ListenAndServe(ctx, c.Listen, impl, options) })
	return nil
}
