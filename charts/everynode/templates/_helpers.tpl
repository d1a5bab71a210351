{{/* Labels of the manager's pods. They are the selector of the Deployment, and the gate's policies find the pods by them. */}}
{{- define "everynode.selectorLabels" -}}
app.kubernetes.io/name: everynode
app.kubernetes.io/component: manager
{{- end }}

{{/*
Labels of objects that config/default does not have. Flux adds the digest of a chart from an OCIRepository to its version, after a
plus sign, which a label must not have.
*/}}
{{- define "everynode.labels" -}}
app.kubernetes.io/name: everynode
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
The reference of an image: that of the release, which Chart.yaml has, with the values instead of its parts.
Argument: a list of the root, and the name of the image.
*/}}
{{- define "everynode.image" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $values := index $root.Values.images (camelcase $name | untitle) }}
{{- $released := "" }}
{{- range index $root.Chart.Annotations "artifacthub.io/images" | fromYamlArray }}
{{- if eq .name $name }}{{ $released = .image }}{{ end }}
{{- end }}
{{- $registry := $root.Values.images.registry | default (dir $released) | trimSuffix "/" }}
{{- $version := regexFind "[:@][^/]*$" $released }}
{{- if or $values.tag $values.digest }}
{{- $version = printf "%s%s" (empty $values.tag | ternary "" (print ":" $values.tag)) (empty $values.digest | ternary "" (print "@" $values.digest)) }}
{{- end }}
{{- printf "%s/%s%s" $registry $values.repository $version }}
{{- end }}

{{/* Whether the policy that names who changes NodeJobs is installed. */}}
{{- define "everynode.attribution" -}}
{{- if and .Values.attribution.enabled (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end }}

{{/* Whether the gate's policies are installed. */}}
{{- define "everynode.gate" -}}
{{- if and .Values.gate.enabled (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
true
{{- end -}}
{{- end }}

{{/*
Policies that live as long as the CRDs: who writes a NodeJob after helm uninstall is asked for the rights too.
Argument: a list of the root, and the manifests.
*/}}
{{- define "everynode.kept" -}}
{{- $root := index . 0 }}
{{- $text := index . 1 }}
{{- if and $root.Values.crds.enabled $root.Values.crds.keep }}
{{- $text = regexReplaceAll "(?m)^metadata:$" $text "metadata:\n  annotations:\n    helm.sh/resource-policy: keep" }}
{{- end }}
{{- $text }}
{{- end }}

{{/* Whether the manager finds the policies that it requires. */}}
{{- define "everynode.policies" -}}
{{- if and .Values.authorization.enabled .Values.confinement.enabled (has "Deny" .Values.authorization.validationActions) -}}
true
{{- end -}}
{{- end }}
