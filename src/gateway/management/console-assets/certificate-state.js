import { formatDistance } from './format.js'

/** The gateway warns this early before an uploaded certificate expires. */
const WARN_BEFORE_MS = 14 * 86_400_000

/** The state of a certificate that people replace. */
export function expiryState({ not_after: notAfter }) {
  const end = Date.parse(notAfter)
  if (end <= Date.now()) return { text: 'Expired', tone: 'bad' }
  return end - Date.now() < WARN_BEFORE_MS
    ? { text: 'Expires soon', tone: 'bad' }
    : { text: 'Valid', tone: 'good' }
}

/** An order of certificates. */
export const EXPIRES_FIRST = {
  label: 'Expires first',
  compare: (a, b) => Date.parse(a.not_after) - Date.parse(b.not_after),
}

const isUnderWay = ({ provisioning_job: job }) => job !== null && job.error_code === null

/** Whether the certificate of a domain is being made. */
export const isCertificatePending = ({ certificate, certificate_management_status: status }) =>
  certificate === null && isUnderWay(status)

/**
 * The state of a domain's certificate, and a sentence about it.
 * @returns {{ text: string, tone: string, sentence: string }}
 */
export function certificateState(domain) {
  const { certificate, certificate_management_status: status } = domain
  if (certificate !== null) return uploadedState(status)
  const { challenge } = domain.certificate_management_policy
  const { renews_at: renewsAt, provisioning_job: job } = status
  // Below a wildcard, certificates follow when names come online.
  if (challenge === 'on-demand' && !job && !renewsAt) {
    const sentence = 'Ordered for each name that comes online'
    return { text: 'Certificate on demand', tone: 'wait', sentence }
  }
  if (!job) {
    const sentence = renewsAt ? `Renews ${formatDistance(renewsAt)}` : 'Not issued yet'
    return { text: 'Certificate ready', tone: 'good', sentence }
  }
  if (!job.error_code) return { text: 'Certificate pending', tone: 'wait', sentence: job.msg }
  const retry = job.retries_at ? ` Next attempt ${formatDistance(job.retries_at)}.` : ''
  const sentence = `${job.msg} (${job.error_code})${retry}`
  return { text: 'Certificate failed', tone: 'bad', sentence }
}

function uploadedState({ ends_at: end }) {
  const isOver = end !== undefined && Date.parse(end) <= Date.now()
  const verb = isOver ? 'expired' : 'expires'
  const sentence = end ? `Uploaded, ${verb} ${formatDistance(end)}` : 'Uploaded'
  return isOver
    ? { text: 'Certificate expired', tone: 'bad', sentence }
    : { text: 'Own certificate', tone: 'good', sentence }
}
