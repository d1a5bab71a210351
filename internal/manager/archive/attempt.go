// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/runner/contract"
)

// Attempt returns where the output of an attempt is stored whose pod is created now.
func (s *Store) Attempt(ctx context.Context, job *v1alpha1.NodeJob, a *task.Attempt, now time.Time) (*task.Archive, error) {
	key := key(job, a, now)
	target := s.base + key
	if s.signer != nil {
		var err error
		// The pod uploads at the end of its life at the latest.
		if target, err = s.signer.presign(ctx, target, now, task.PodTimeout(job, a.Phase)+task.KubeletSlack); err != nil {
			return nil, fmt.Errorf("signing the URL of the archive: %w", err)
		}
	}
	return &task.Archive{URL: target, Location: s.location + key, CA: s.ca, MaxBytes: s.config.MaxBytes, UploadTime: s.config.UploadTime}, nil
}

// key is the name of an object, which no other attempt has: an attempt that is repeated after a disruption has the same
// number. Names of objects of Kubernetes need no escapes in a URL. The outputs of a node sort by time.
func key(job *v1alpha1.NodeJob, a *task.Attempt, now time.Time) string {
	return strings.Join([]string{
		job.Namespace, job.Name, a.Revision, a.NodeName,
		fmt.Sprintf("%s-%s-%d.log", now.UTC().Format("20060102T150405Z"), a.Phase, a.Number),
	}, "/")
}

// signer signs URLs for S3.
type signer struct {
	region, id, secret, token string
}

const (
	// skew is how far the clocks of the manager and of the archive may differ.
	skew = 5 * time.Minute
	// maxValidity is the longest time that S3 accepts. Source: Amazon S3 API Reference, authenticating requests with query
	// parameters.
	maxValidity = 7 * 24 * time.Hour
)

// presign returns a URL that allows one thing, until the life of a pod has passed: to write this object once. Who may read pods can
// read the URL, and must not be able to overwrite what is stored.
func (s *signer) presign(ctx context.Context, target string, now time.Time, life time.Duration) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, target, http.NoBody)
	if err != nil {
		return "", err
	}
	request.Header.Set(contract.OnceHeader, contract.Once)
	valid := min(life+2*skew, maxValidity)
	request.URL.RawQuery = url.Values{"X-Amz-Expires": {strconv.Itoa(int(valid / time.Second))}}.Encode()
	credentials := aws.Credentials{AccessKeyID: s.id, SecretAccessKey: s.secret, SessionToken: s.token}
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, credentials, request, "UNSIGNED-PAYLOAD", "s3", s.region, now.Add(-skew),
		func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return signed, err
}
