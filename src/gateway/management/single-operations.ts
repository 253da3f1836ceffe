import type { Operation } from '../../http/openapi.ts'

const HEALTH: Operation = {
  id: 'health',
  summary: 'Liveness: process and database work',
  method: 'get',
  path: '/healthz',
  answers: { 200: { means: 'Process and database work.', schema: 'Health' } },
  isOpen: true,
}

const READINESS: Operation = {
  id: 'ready',
  summary: 'Readiness: send visitors and agents to this gateway',
  method: 'get',
  path: '/readyz',
  answers: {
    200: { means: 'Ready, also while no gateway reaches PostgreSQL.', schema: 'Readiness' },
    503: { means: 'Not ready, with reasons.', schema: 'Readiness' },
  },
  isOpen: true,
}

const STORAGE: readonly Operation[] = [
  {
    id: 'storage',
    summary: 'State of the database',
    method: 'get',
    path: '/storage',
    answers: { 200: { means: 'The state.', schema: 'Storage' } },
  },
  {
    id: 'storage_confirm',
    summary: 'Acknowledge possible data loss after damage',
    method: 'post',
    path: '/storage/confirm',
    answers: { 200: { means: 'The state now.', schema: 'Storage' } },
  },
]

const BATCH: Operation = {
  id: 'batch',
  summary: 'Create many resources, each with its own answer',
  description:
    'Each item is handled like a separate request, in no fixed order. Items must not depend on each other. An item counts as a tenth of a request.',
  method: 'post',
  path: '/batch',
  body: 'Batch',
  answers: { 200: { means: 'The answer for each item.', schema: 'BatchAnswers' } },
}

const METRICS: Operation = {
  id: 'metrics',
  summary: 'Metrics for Prometheus; svc-version is not required',
  method: 'get',
  path: '/metrics',
  answers: {
    200: {
      means: 'Prometheus text format, version 0.0.4.',
      schema: 'Metrics',
      mediaType: 'text/plain',
    },
  },
}

const OPENAPI: Operation = {
  id: 'openapi',
  summary: 'OpenAPI document',
  method: 'get',
  path: '/openapi.json',
  answers: { 200: { means: 'OpenAPI 3.1.', schema: 'OpenApi' } },
}

/** What is no verb of a resource. */
export const SINGLE_OPERATIONS: readonly Operation[] = [
  BATCH,
  ...STORAGE,
  METRICS,
  OPENAPI,
  HEALTH,
  READINESS,
]
