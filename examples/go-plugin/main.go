// Command rack-plugin is an example of a provider plugin: it reboots machines
// through the HTTP API of a rack controller. The controller remembers the ids of
// the requests it took, so the plugin needs no memory of its own.
//
// Over a network it speaks TLS and admits the janitor alone; on a Unix socket or a
// loopback address it may do without.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"net/url"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/api/csp/auth"
	"github.com/nvidia/nvsentinel/api/csp/plugin"
	v1 "github.com/nvidia/nvsentinel/api/csp/v1"
)

// settings are the plugin's flags.
type settings struct {
	listen, controller                 string
	cert, key                          string
	caller, audience, api, accountPath string
}

func main() {
	var s settings
	flag.StringVar(&s.listen, "listen", ":9090", "Address on which the plugin serves the janitor, as host:port or unix:///path.")
	flag.StringVar(&s.controller, "controller", "http://rack-controller", "URL of the rack controller.")
	flag.StringVar(&s.cert, "tls-cert-file", "", "PEM file with the certificate of the plugin, read again for every connection.")
	flag.StringVar(&s.key, "tls-key-file", "", "PEM file with the private key of the certificate.")
	flag.StringVar(&s.caller, "caller", "system:serviceaccount:nvsentinel:janitor", "Service account that may call the plugin. Empty admits every caller, which is allowed only on a Unix socket or a loopback address.")
	flag.StringVar(&s.audience, "audience", "csp-plugin", "Audience that the token of the caller must contain.")
	flag.StringVar(&s.api, "api-server", "https://kubernetes.default.svc", "URL of the API server that reviews tokens.")
	flag.StringVar(&s.accountPath, "account-dir", "/var/run/secrets/kubernetes.io/serviceaccount", "Directory with the ca.crt of the API server and the token of the plugin.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options, err := s.options()
	if err == nil {
		err = plugin.ListenAndServe(ctx, s.listen, rack{url: s.controller}, options)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// options make the server speak TLS and know its caller.
func (s settings) options() (o plugin.Options, _ error) {
	if !plugin.Local(s.listen) && (s.cert == "" || s.caller == "") {
		return o, errors.New("over a network, --tls-cert-file, --tls-key-file and --caller are required, because every caller can reboot machines")
	}
	if s.cert != "" {
		o.TLS = &plugin.TLS{CertFile: s.cert, KeyFile: s.key}
	}
	if s.caller == "" {
		return o, nil
	}
	api, err := auth.NewAPIServer(s.api, filepath.Join(s.accountPath, "ca.crt"), filepath.Join(s.accountPath, "token"))
	if err != nil {
		return o, err
	}
	check, err := auth.New(api, auth.Policy{Audience: s.audience, Allowed: []string{s.caller}})
	if err != nil {
		return o, err
	}
	o.Server = check.ServerOptions()
	return o, nil
}

type rack struct {
	v1.UnimplementedCSPPluginServiceServer
	url string
}

func (r rack) SendRebootSignal(ctx context.Context, q *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	a, err := r.call(ctx, http.MethodPost, q.GetNodeName(), q.GetIdempotencyKey())
	return &v1.SendRebootSignalResponse{RequestId: a.Request}, err
}

func (r rack) IsNodeReady(ctx context.Context, q *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	a, err := r.call(ctx, http.MethodGet, q.GetNodeName(), "")
	return &v1.IsNodeReadyResponse{IsReady: a.On}, err
}

func (r rack) SendTerminateSignal(ctx context.Context, q *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	a, err := r.call(ctx, http.MethodDelete, q.GetNodeName(), q.GetIdempotencyKey())
	return &v1.SendTerminateSignalResponse{RequestId: a.Request}, err
}

// answer is what the rack controller reports about a machine.
type answer struct {
	Request string `json:"request"`
	On      bool   `json:"on"`
	Error   string `json:"error"`
}

// call calls the rack controller; its error is the answer to the janitor.
func (r rack) call(ctx context.Context, method, machine, id string) (a answer, _ error) {
	if machine == "" {
		return a, status.Error(codes.InvalidArgument, "node_name is empty")
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+"/machines/"+url.PathEscape(machine)+"?id="+url.QueryEscape(id), http.NoBody)
	if err != nil {
		return a, status.Error(codes.InvalidArgument, err.Error())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, status.Error(codes.Unavailable, err.Error()) // it may have been done
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		return a, plugin.RetryLater(10*time.Second, "the rack controller is busy")
	}
	err = json.NewDecoder(resp.Body).Decode(&a)
	switch {
	case err == nil && resp.StatusCode == http.StatusOK:
		return a, nil
	// The controller's own words alone are for good. A status may be that of a proxy,
	// or of an address that is wrong, and reports nothing about the machine.
	case err == nil && a.Error == "no-such-machine":
		return a, status.Errorf(codes.NotFound, "the rack has no machine %q", machine)
	case err == nil && a.Error == "id-of-another-machine":
		return a, status.Errorf(codes.InvalidArgument, "id %q was used for another machine", id)
	}
	return a, status.Errorf(codes.Unknown, "the rack controller answered %s", resp.Status)
}
