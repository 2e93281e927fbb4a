package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/internal/config"
)

// Provider controls instances of Compute Engine.
type Provider struct {
	instances  *compute.InstancesClient
	operations *compute.ZoneOperationsClient
}

// callLimit bounds one exchange with Compute Engine; it is less than the janitor's
// own limit of a call.
const callLimit = 20 * time.Second

// scope is what the plugin's tokens are good for, as far as its account's roles allow.
const scope = "https://www.googleapis.com/auth/compute"

// New makes the provider. Credentials are Google's application default ones: of the
// service account that the pod's is bound to, or of a file.
func New(ctx context.Context, c Config) (*Provider, error) {
	found, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{scope}, UseSelfSignedJWT: true})
	if err != nil {
		return nil, fmt.Errorf("finding the application default credentials of Google: %w", err)
	}
	options := []option.ClientOption{option.WithAuthCredentials(auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: signer{found}}))}
	if c.Endpoint != "" {
		options = append(options, option.WithEndpoint(c.Endpoint))
	}
	instances, err := compute.NewInstancesRESTClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("creating a Compute Engine client: %w", err)
	}
	operations, err := compute.NewZoneOperationsRESTClient(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("creating a Compute Engine client: %w", err)
	}
	// The janitor repeats; a client that repeats by itself hides that it has to.
	instances.CallOptions.Get, operations.CallOptions.Get = nil, nil
	return &Provider{instances: instances, operations: operations}, nil
}

// providerID is that of the Kubernetes cloud provider of Google:
// gce://project/us-central1-a/name. A project may begin with a domain.
var providerID = regexp.MustCompile(`^gce://((?:[a-z0-9.-]+:)?[a-z0-9-]+)/([a-z0-9-]+)/([a-z][a-z0-9-]*)$`)

// resource is where an instance is.
type resource struct{ project, zone, name string }

func parse(machine string) (resource, error) {
	match := providerID.FindStringSubmatch(machine)
	if match == nil {
		return resource{}, cloud.Malformed(machine, "gce://PROJECT/ZONE/NAME")
	}
	return resource{match[1], match[2], match[3]}, nil
}

func (p *Provider) get(ctx context.Context, machine string) (resource, *computepb.Instance, error) {
	at, err := parse(machine)
	if err != nil {
		return at, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := p.instances.Get(ctx, &computepb.GetInstanceRequest{Project: at.project, Zone: at.zone, Instance: at.name})
	return at, found, answered(err)
}

// State asks for the state of the instance. TERMINATED is Compute Engine's word for
// one that is stopped; one that was deleted is not found.
func (p *Provider) State(ctx context.Context, machine string) (cloud.State, error) {
	_, found, err := p.get(ctx, machine)
	switch {
	case status.Code(err) == codes.NotFound:
		return cloud.Gone, nil
	case err != nil:
		return "", err
	case found.GetStatus() == computepb.Instance_RUNNING.String():
		return cloud.Up, nil
	}
	return cloud.NotUp, nil
}

// Kinds of names of an instance.
const (
	// Name is the instance's name, alone or with the domain of internal DNS.
	Name = "name"
	// Hostname is the custom one, which is given at the creation.
	Hostname = "hostname"
)

// Kinds are all of them.
var Kinds = []string{Name, Hostname}

// Canonical is the whole providerID.
func (p *Provider) Canonical(machine string) (string, error) {
	_, err := parse(machine)
	return machine, err
}

// Identity asks for the instance's names and labels.
func (p *Provider) Identity(ctx context.Context, machine string) (cloud.Identity, error) {
	at, found, err := p.get(ctx, machine)
	if err != nil {
		return cloud.Identity{}, err
	}
	// The domain of a project, example.com:name, comes last in host names.
	domain, project, ok := strings.Cut(at.project, ":")
	if ok {
		project += "." + domain
	} else {
		project = at.project
	}
	return cloud.Identity{
		Names: map[string][]string{
			Name:     {at.name, fmt.Sprintf("%s.%s.c.%s.internal", at.name, at.zone, project), fmt.Sprintf("%s.c.%s.internal", at.name, project)},
			Hostname: {found.GetHostname()},
		},
		Tags: found.GetLabels(),
	}, nil
}

// Begin resets or deletes the instance, under a request id: Compute Engine answers
// a repetition with the operation it has. A reset waits for no operating system, so
// force changes nothing.
func (p *Provider) Begin(ctx context.Context, s cloud.Signal) (string, error) {
	at, err := parse(s.Machine)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	id := s.ID.String()
	var operation *compute.Operation
	if s.Terminate {
		operation, err = p.instances.Delete(ctx, &computepb.DeleteInstanceRequest{Project: at.project, Zone: at.zone, Instance: at.name, RequestId: &id})
	} else {
		operation, err = p.instances.Reset(ctx, &computepb.ResetInstanceRequest{Project: at.project, Zone: at.zone, Instance: at.name, RequestId: &id})
	}
	if err != nil {
		return "", answered(err)
	}
	return operation.Name(), nil
}

// Progress asks for the zone's operation. Compute Engine forgets one after two weeks.
func (p *Provider) Progress(ctx context.Context, machine, operation string) (cloud.Progress, error) {
	at, err := parse(machine)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := p.operations.Get(ctx, &computepb.GetZoneOperationRequest{Project: at.project, Zone: at.zone, Operation: operation})
	switch err = answered(err); {
	case status.Code(err) == codes.NotFound:
		return cloud.UnknownOperation, nil
	case err != nil:
		return "", err
	case found.GetStatus() != computepb.Operation_DONE:
		return cloud.Running, nil
	}
	return cloud.Over, failed(found)
}

// failed is how an operation that is over went wrong.
func failed(o *computepb.Operation) error {
	if len(o.GetError().GetErrors()) == 0 && o.GetHttpErrorStatusCode() < 300 {
		return nil
	}
	words := []string{fmt.Sprintf("operation %s (%s) failed", o.GetName(), o.GetOperationType())}
	if o.GetHttpErrorMessage() != "" {
		words = append(words, o.GetHttpErrorMessage())
	}
	for _, e := range o.GetError().GetErrors() {
		words = append(words, e.GetCode()+": "+e.GetMessage())
	}
	return status.Error(codes.FailedPrecondition, strings.Join(words, ": "))
}

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config
	cloud.Proof
	// Endpoint replaces the address of the Compute Engine API.
	Endpoint string `toml:"endpoint" flag:"compute-endpoint" usage:"URL of the Compute Engine API, for Private Service Connect, with scheme and host only. Empty uses the public API."`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: cloud.Default(), Proof: cloud.Proof{NodeNameFrom: Kinds}}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	return errors.Join(c.Config.Validate(), config.CheckOrigin("endpoint (--compute-endpoint)", c.Endpoint), c.Proof.Validate(Kinds))
}
