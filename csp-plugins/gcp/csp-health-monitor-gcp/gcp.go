package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/logging/v2"
	"google.golang.org/api/option"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
	"github.com/nvidia/nvsentinel/internal/config"
)

// CloudConfig defines which part of Google Cloud is asked.
type CloudConfig struct {
	// Project is the id of the project of the instances.
	Project string `toml:"project" bounds:"not empty" flag:"project" usage:"ID of the project that contains the instances."`
	// Filter narrows the instances that are listed, in Compute Engine's language; empty
	// lists all of the project. What it leaves out counts as gone.
	Filter string `toml:"filter" flag:"filter" usage:"Filter that selects instances, for example labels.goog-k8s-cluster-name=NAME. Empty selects all instances of the project."`
	// WithoutLogs asks Compute Engine alone.
	WithoutLogs bool `toml:"withoutLogs" flag:"without-logs" usage:"If true, reads Compute Engine only and skips the system event audit log."`
	// ComputeEndpoint and LoggingEndpoint replace the addresses of the APIs.
	ComputeEndpoint string `toml:"computeEndpoint" flag:"compute-endpoint" usage:"URL of the Compute Engine API, for Private Service Connect, with scheme and host only. Empty uses the public API."`
	LoggingEndpoint string `toml:"loggingEndpoint" flag:"logging-endpoint" usage:"URL of the Cloud Logging API, with scheme and host only. Empty uses the public API."`
}

// checkOrigins refuses an address to which a token would go in clear text.
func (c CloudConfig) checkOrigins() error {
	return errors.Join(
		config.CheckOrigin("gcp.computeEndpoint (--compute-endpoint)", c.ComputeEndpoint),
		config.CheckOrigin("gcp.loggingEndpoint (--logging-endpoint)", c.LoggingEndpoint))
}

// attempts is how often a page is asked for before the reading fails.
const attempts = 3

// Source is one project.
type Source struct {
	instances *compute.InstancesClient
	logs      *logging.EntriesService // nil: Compute Engine alone
	project   string
	filter    string
}

var _ announcement.Source = (*Source)(nil)

// New makes the source. Credentials are the application's default ones: the workload
// identity of the service account, or a file. More options go to both clients.
func New(ctx context.Context, c CloudConfig, options ...option.ClientOption) (*Source, error) {
	if c.Project == "" {
		return nil, errors.New("project: no Google Cloud project is set, set its ID")
	}
	at := func(origin string) []option.ClientOption {
		if origin == "" {
			return options
		}
		return append([]option.ClientOption{option.WithEndpoint(origin)}, options...)
	}
	instances, err := compute.NewInstancesRESTClient(ctx, at(c.ComputeEndpoint)...)
	if err != nil {
		return nil, fmt.Errorf("creating a Compute Engine client: %w", err)
	}
	s := &Source{instances: instances, project: c.Project, filter: c.Filter}
	if c.WithoutLogs {
		return s, nil
	}
	service, err := logging.NewService(ctx, append(at(c.LoggingEndpoint), option.WithScopes(logging.LoggingReadScope))...)
	if err != nil {
		return nil, fmt.Errorf("creating a Cloud Logging client: %w", err)
	}
	s.logs = service.Entries
	return s, nil
}

// again repeats what was throttled or failed at Google, three attempts in all.
func again() gax.Retryer {
	return &bounded{left: attempts - 1, Retryer: gax.OnHTTPCodes(gax.Backoff{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Multiplier: 2},
		http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)}
}

type bounded struct {
	gax.Retryer
	left int
}

func (b *bounded) Retry(err error) (time.Duration, bool) {
	if b.left == 0 {
		return 0, false
	}
	b.left--
	return b.Retryer.Retry(err)
}

// providerID is that of the Kubernetes cloud provider: gce://PROJECT/ZONE/NAME. The
// project of an organisation has a domain before it.
var providerID = regexp.MustCompile(`^gce://([a-z0-9.:-]+/[a-z0-9-]+/[a-z0-9-]+)$`)

// Machine is the instance as PROJECT/ZONE/NAME.
func (s *Source) Machine(id string) (string, bool) {
	return announcement.Match(providerID, id)
}

// Names are the instance's name, alone or with the domain of internal DNS: the last part of
// the machine's.
func (s *Source) Names(_ context.Context, machines []string) (map[string][]string, error) {
	names := map[string][]string{}
	for _, machine := range machines {
		part := strings.Split(machine, "/")
		project, zone, name := part[0], part[1], part[2]
		if domain, short, ok := strings.Cut(project, ":"); ok {
			project = short + "." + domain
		}
		names[machine] = []string{name, name + "." + zone + ".c." + project + ".internal", name + ".c." + project + ".internal"}
	}
	return names, nil
}

// Check lists one instance and one line of the log.
func (s *Source) Check(ctx context.Context) error {
	one := uint32(1)
	_, err := s.instances.AggregatedList(ctx, &computepb.AggregatedListInstancesRequest{Project: s.project, MaxResults: &one}, gax.WithRetry(again)).Next()
	if err != nil && !errors.Is(err, iterator.Done) {
		return fmt.Errorf("checking compute.instances.list: %w", refused(err))
	}
	if s.logs == nil {
		return nil
	}
	if _, err := s.page(ctx, &logging.ListLogEntriesRequest{ResourceNames: []string{"projects/" + s.project}, PageSize: 1, Filter: s.methods()}); err != nil {
		return fmt.Errorf("checking logging.logEntries.list: %w", refused(err))
	}
	return nil
}

// refused adds to an error what ends it, where that is not the next poll.
func refused(err error) error {
	if e, ok := errors.AsType[*googleapi.Error](err); ok && e.Code == http.StatusForbidden {
		return fmt.Errorf("%w: grant the permission to the service account and enable the API, it fails until then", err)
	}
	return err
}
