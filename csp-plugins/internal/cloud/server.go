package cloud

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/api/csp/auth"
	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
	"github.com/nvidia/nvsentinel/internal/config"
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
	if _, ok := impl.hardware(); !ok {
		impl.watch(d) // hardware is watched machine by machine
	}
	if c.Anyone {
		c.Callers = nil
	}
	return c.Start(d, cluster.Clientset, impl)
}

// Server is how a plugin of this repository is called: where, by TLS, and by whom.
type Server struct {
	_ struct{} `block:"Plugin server" usage:"Address of a provider plugin, and the identities that may call it ([plugins](../../tasks/connect-a-cloud.md))"`

	// Listen is the host:port or unix:///path the janitor calls.
	Listen string `toml:"listen" bounds:"not empty" flag:"listen" usage:"Address on which the plugin serves the janitor, as host:port or unix:///path."`
	// CertFile, KeyFile and ClientCAFile make the plugin speak TLS.
	CertFile     string `toml:"certFile" flag:"tls-cert-file" usage:"PEM file with the certificate of the plugin, read again for every connection. Empty disables TLS."`
	KeyFile      string `toml:"keyFile" flag:"tls-key-file" usage:"PEM file with the private key of the plugin's certificate."`
	ClientCAFile string `toml:"clientCAFile" flag:"tls-client-ca-file" usage:"PEM file with the CA certificates that verify client certificates. Empty does not request client certificates."`
	// Audience and Callers make the plugin verify its callers; without any it admits
	// everybody.
	Audience string   `toml:"audience" flag:"audience" usage:"Audience that the service account tokens of callers must contain."`
	Callers  []string `toml:"callers" flag:"callers" usage:"Identities that may call the plugin, for example system:serviceaccount:nvsentinel:janitor. Empty admits every caller."`

	Kube kube.Config `toml:"kube"`
}

// Validate joins everything that is wrong.
func (s Server) Validate() error {
	problems := []error{config.CheckBounds(s), s.Kube.Validate()}
	if (s.CertFile == "") != (s.KeyFile == "") || s.ClientCAFile != "" && s.CertFile == "" {
		problems = append(problems, errors.New("certFile (--tls-cert-file) and keyFile (--tls-key-file) must be set together, and clientCAFile (--tls-client-ca-file) requires them"))
	}
	return errors.Join(problems...)
}

// Start serves a plugin, which asks the API server about its callers under its own identity.
func (s Server) Start(d *daemon.Daemon, client kubernetes.Interface, impl v1.CSPPluginServiceServer) error {
	options := plugin.Options{
		Panicked: func(method string, value any) { d.Log.Error("call panicked", "method", method, "panic", value) },
	}
	if s.CertFile != "" {
		options.TLS = &plugin.TLS{CertFile: s.CertFile, KeyFile: s.KeyFile, ClientCAFile: s.ClientCAFile}
	}
	if len(s.Callers) > 0 {
		check, err := auth.New(reviews{client}, auth.Policy{Audience: s.Audience, Allowed: s.Callers})
		if err != nil {
			return fmt.Errorf("verifying callers: %w", err)
		}
		options.Server = append(options.Server, check.ServerOptions()...)
	}
	d.Go("server", func(ctx context.Context) error { return plugin.ListenAndServe(ctx, s.Listen, impl, options) })
	return nil
}

// reviews asks the API server about tokens.
type reviews struct{ client kubernetes.Interface }

// Review asks about one token.
func (r reviews) Review(ctx context.Context, token, audience string) (auth.Review, error) {
	answer, err := r.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return auth.Review{}, fmt.Errorf("requesting a TokenReview: %w", err)
	}
	s := answer.Status
	return auth.Review{Authenticated: s.Authenticated, Username: s.User.Username, Audiences: s.Audiences, Problem: s.Error}, nil
}

// Config is what every plugin of a cloud needs.
type Config struct {
	_ struct{} `block:"Provider plugin" usage:"Settings of every plugin that can reboot or terminate machines. TLS and caller authentication are on by default"`

	Server
	// Namespace is the plugin's own, where it remembers keys.
	Namespace string `toml:"namespace" bounds:"not empty" flag:"namespace" usage:"Namespace of the ConfigMaps in which the plugin records the idempotency keys of executed requests."`
	// Plaintext gives up TLS.
	Plaintext bool `toml:"plaintext" flag:"plaintext" usage:"If true, serves without TLS. Allowed only on a Unix socket or a loopback address."`
	// Anyone admits callers without a token.
	Anyone bool `toml:"allowUnauthenticated" flag:"allow-unauthenticated" usage:"If true, admits callers without a token. Use it only for a Unix socket that the janitor alone can open."`
}

// Default is the configuration without a file; it lacks certificates.
func Default() Config {
	return Config{
		Server:    Server{Listen: ":9090", Audience: "csp-plugin", Callers: []string{"system:serviceaccount:nvsentinel:janitor"}},
		Namespace: "nvsentinel",
	}
}

// Validate joins everything that is wrong. A plugin that can destroy machines
// speaks TLS and knows its callers unless it is configured otherwise.
func (c Config) Validate() error {
	problems := []error{config.CheckBounds(c), c.Server.Validate()}
	if (c.CertFile == "") != c.Plaintext {
		problems = append(problems, errors.New("either certFile (--tls-cert-file) or plaintext (--plaintext) must be set"))
	}
	if (c.Audience == "" || len(c.Callers) == 0) && !c.Anyone {
		problems = append(problems, errors.New("audience (--audience) and callers (--callers) must be set, or allowUnauthenticated (--allow-unauthenticated)"))
	}
	return errors.Join(problems...)
}
