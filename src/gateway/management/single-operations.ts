import type { Operation } from '../../http/openapi.ts'

const HEALTH: Operation = {
  id: 'health',
  summary: 'Whether the process and its database work',
  method: 'get',
  path: '/healthz',
  answers: { 200: { means: 'They do.', schema: 'Health' } },
  isOpen: true,
}

const READINESS: Operation = {
  id: 'ready',
  summary: 'Whether visitors and agents should come to this gateway',
  method: 'get',
  path: '/readyz',
  answers: {
    200: { means: 'They should; also while PostgreSQL is away for all.', schema: 'Readiness' },
    503: { means: 'They should not, and why.', schema: 'Readiness' },
  },
  isOpen: true,
}

const STORAGE: readonly Operation[] = [
  {
    id: 'storage',
    summary: 'How the database is',
    method: 'get',
    path: '/storage',
    answers: { 200: { means: 'How it is.', schema: 'Storage' } },
  },
  {
    id: 'storage_confirm',
    summary: 'Say that it was seen what may be missing after a damage',
    method: 'post',
    path: '/storage/confirm',
    answers: { 200: { means: 'How it is now.', schema: 'Storage' } },
  },
]

const BATCH: Operation = {
  id: 'batch',
  summary: 'Make many things at once, each with an answer of its own',
  description:
    'Each is made as if it had come alone, in no order: none may need another one of them. It counts as a tenth of a request.',
  method: 'post',
  path: '/batch',
  body: 'Batch',
  answers: { 200: { means: 'What became of each.', schema: 'BatchAnswers' } },
}

const METRICS: Operation = {
  id: 'metrics',
  summary: 'Figures for Prometheus; needs no svc-version',
  method: 'get',
  path: '/metrics',
  answers: {
    200: { means: 'The text format, version 0.0.4.', schema: 'Metrics', mediaType: 'text/plain' },
  },
}

const OPENAPI: Operation = {
  id: 'openapi',
  summary: 'This document',
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
