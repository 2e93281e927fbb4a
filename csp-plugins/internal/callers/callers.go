// Package callers makes the server options of a plugin of this repository: TLS
// and the verification of those who call it.
package callers

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/api/csp/auth"
	"github.com/nvidia/nvsentinel/api/csp/plugin"
)

// Reviews asks the API server about tokens under the plugin's own identity.
type Reviews struct{ Client kubernetes.Interface }

// Review asks about one token.
func (r Reviews) Review(ctx context.Context, token, audience string) (auth.Review, error) {
	answer, err := r.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return auth.Review{}, fmt.Errorf("asking the API server about a token: %w", err)
	}
	s := answer.Status
	return auth.Review{Authenticated: s.Authenticated, Username: s.User.Username, Audiences: s.Audiences, Problem: s.Error}, nil
}

// Admit makes a server admit the named callers alone; without any it admits
// everybody.
func Admit(o *plugin.Options, r auth.Reviewer, audience string, allowed []string) error {
	if len(allowed) == 0 {
		return nil
	}
	check, err := auth.New(r, auth.Policy{Audience: audience, Allowed: allowed})
	if err != nil {
		return fmt.Errorf("admitting callers: %w", err)
	}
	o.Server = append(o.Server, check.ServerOptions()...)
	return nil
}
