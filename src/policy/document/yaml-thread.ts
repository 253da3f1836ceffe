import { parentPort } from 'node:worker_threads'
import { policyReading } from './policy-text.ts'

/** Reads the received texts, one after another. */
parentPort?.on('message', (text: string) => {
  parentPort?.postMessage(policyReading(text))
})
