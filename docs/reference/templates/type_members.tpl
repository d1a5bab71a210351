{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
[metadata](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/) of Kubernetes
{{- else -}}
{{ markdownRenderFieldDoc .Doc }}
{{- end -}}
{{- end -}}
