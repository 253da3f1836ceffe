import process from 'node:process'
import { checkPolicy } from '../../policy/check.ts'
import { policyJson } from '../../policy/document/policy-text.ts'
import type { PolicyQuestion } from './policy-process.ts'

/** Reads and checks policies for the agent that started this process, until the agent disconnects. */
process.on('message', (question: PolicyQuestion) => {
  const { text } = question
  process.send?.('isRead' in question ? policyJson(text) : checkPolicy(text, question))
})
process.on('disconnect', () => process.exit())
process.send?.('ready')
