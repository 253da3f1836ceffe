import { expect, it } from 'vitest'
import { issueErrorText } from '../../../../src/gateway/certificates/acme/acme-certificate.ts'

it('gives what the authority says in one line, without control characters', () => {
  expect(issueErrorText(new Error('no\0 such\r\n\u001b[31mname'))).toBe(
    'The authority did not issue the certificate: no  such [31mname',
  )
})
