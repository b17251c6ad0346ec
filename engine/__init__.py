"""refold"""
